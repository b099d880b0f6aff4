"""FireArrow: a message queue for Python and data teams that speaks RocketMQ.

Importing this package is cheap: it loads no server, no gRPC and no Spark (a test checks it).
"""

__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
