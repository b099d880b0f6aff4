from firearrow.hot.reference.pulling import (
    Pulled as Pulled,
)
from firearrow.hot.reference.pulling import (
    PullGate as PullGate,
)
from firearrow.hot.reference.pulling import (
    PullPath as PullPath,
)
from firearrow.hot.reference.pulling import (
    own_filter as own_filter,
)
from firearrow.hot.reference.pulling import (
    pull_key as pull_key,
)
