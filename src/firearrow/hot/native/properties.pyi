from firearrow.hot.reference.properties import (
    property_values as property_values,
)
