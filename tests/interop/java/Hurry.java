package firearrow.interop;

/**
 * Shortens the stop of RocketMQ's clients, which otherwise takes up to three seconds each.
 *
 * <p>A client that stops waits for its thread "NettyEventExecutor", and that thread looks only every
 * three seconds whether it should end. An interrupt wakes it. It survives an interrupt at any other
 * time (it logs a warning and goes on), but we send one only while a watched thread waits in a stop.
 */
final class Hurry {
    private static final int LOOK_EVERY_MS = 20;

    private Hurry() {
    }

    /** Watches one thread from now on, from a daemon thread. */
    static void watch(Thread watched) {
        Thread watcher = new Thread(() -> {
            while (watched.isAlive()) {
                if (stops(watched)) {
                    wakeEventExecutors();
                }
                try {
                    Thread.sleep(LOOK_EVERY_MS);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }, "hurry");
        watcher.setDaemon(true);
        watcher.start();
    }

    private static boolean stops(Thread watched) {
        for (StackTraceElement frame : watched.getStackTrace()) {
            if (frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown")) {
                return true;
            }
        }
        return false;
    }

    private static void wakeEventExecutors() {
        Thread[] threads = new Thread[Thread.activeCount() + 16];
        int count = Thread.enumerate(threads);
        for (int i = 0; i < count; i++) {
            if (threads[i].getName().equals("NettyEventExecutor")) {
                threads[i].interrupt();
            }
        }
    }
}
