from firearrow.hot.reference.batches import (
    PairsColumn as PairsColumn,
)
from firearrow.hot.reference.batches import (
    TextColumn as TextColumn,
)
from firearrow.hot.reference.batches import (
    encode_rows as encode_rows,
)
