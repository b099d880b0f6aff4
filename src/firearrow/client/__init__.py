"""A RocketMQ client for asyncio: it talks to FireArrow and to Apache brokers alike."""
