from firearrow.hot.reference.frames import decode_frames as decode_frames
