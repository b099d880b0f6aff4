"""The remoting protocol on asyncio: connections, a server, a client.

Read `connection.py` first: it is the only place where bytes meet the network.
"""
