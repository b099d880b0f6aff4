from firearrow.hot.reference.keys import (
    KeyTable as KeyTable,
)
