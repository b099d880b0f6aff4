from firearrow.hot.reference.producing import ReceiptReader as ReceiptReader
from firearrow.hot.reference.producing import SendForm as SendForm
from firearrow.hot.reference.producing import encode_messages as encode_messages
from firearrow.hot.reference.producing import number_keys as number_keys
