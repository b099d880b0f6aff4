from firearrow.hot.reference.sending import (
    SendPath as SendPath,
)
from firearrow.hot.reference.sending import (
    Served as Served,
)
from firearrow.hot.reference.sending import (
    TopicGate as TopicGate,
)
