r"""For `spark-submit`: the same commands as `firearrow pipeline …`, in a session that it makes.

    spark-submit --master spark://host:7077 --archives firearrow.tar.gz#packages \
        --conf spark.executorEnv.PYTHONPATH=./packages \
        "$(firearrow pipeline package firearrow.tar.gz)" archive /data/archive --topic orders

`firearrow pipeline package` writes a copy of this file beside the archive and prints its path.
"""

import sys

from firearrow.cli.main import run

if __name__ == "__main__":
    sys.argv[1:1] = ["pipeline"]
    run()
