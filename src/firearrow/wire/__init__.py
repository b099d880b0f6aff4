"""The remoting protocol as bytes and values. No sockets, no asyncio.

Read `codes.py` for what can be asked, `command.py` for the frame, `headers/` for the fields of each
request and `bodies/` for the JSON documents that travel as frame bodies.
"""
