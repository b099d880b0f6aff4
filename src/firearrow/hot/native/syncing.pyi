from firearrow.hot.reference.syncing import (
    serve_syncs as serve_syncs,
)
