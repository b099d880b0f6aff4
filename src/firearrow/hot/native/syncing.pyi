from firearrow.hot.reference.syncing import (
    bring_in as bring_in,
)
from firearrow.hot.reference.syncing import (
    serve_syncs as serve_syncs,
)
