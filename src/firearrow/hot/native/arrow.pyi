from firearrow.hot.reference.arrow import (
    ArrowRows as ArrowRows,
)
