"""The bytes of RocketMQ's remoting protocol, without I/O: frames, headers, bodies, signatures."""
