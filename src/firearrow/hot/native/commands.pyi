from firearrow.hot.reference.commands import Command as Command
from firearrow.hot.reference.commands import encode_frame as encode_frame
from firearrow.hot.reference.commands import encode_head as encode_head
