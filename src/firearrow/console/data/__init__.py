"""What the pages show, without the pages: functions over Admin, and plain values."""
