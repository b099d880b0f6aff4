from firearrow.hot.reference.text import (
    crc31 as crc31,
)
from firearrow.hot.reference.text import (
    decode_properties as decode_properties,
)
from firearrow.hot.reference.text import (
    encode_properties as encode_properties,
)
from firearrow.hot.reference.text import (
    encode_unique_key as encode_unique_key,
)
from firearrow.hot.reference.text import (
    java_hash as java_hash,
)
from firearrow.hot.reference.text import (
    offset_message_id as offset_message_id,
)
from firearrow.hot.reference.text import (
    parse_offset_message_id as parse_offset_message_id,
)
from firearrow.hot.reference.text import (
    parse_unique_key as parse_unique_key,
)
