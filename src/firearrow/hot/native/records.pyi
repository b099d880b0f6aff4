from firearrow.hot.reference.records import (
    Record as Record,
)
from firearrow.hot.reference.records import (
    decode_record as decode_record,
)
from firearrow.hot.reference.records import (
    decode_records as decode_records,
)
from firearrow.hot.reference.records import (
    encode_record as encode_record,
)
from firearrow.hot.reference.records import (
    scan_records as scan_records,
)
from firearrow.hot.reference.records import (
    select_records as select_records,
)
from firearrow.hot.reference.records import (
    tile_records as tile_records,
)
from firearrow.hot.reference.records import (
    write_record as write_record,
)
