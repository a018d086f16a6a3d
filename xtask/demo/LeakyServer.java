import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * A server as operators meet it: its Java heap is quiet while its native memory grows. Every session
 * keeps a Deflater (about 260 KiB of native memory, a few dozen bytes of Java heap) that nobody ends,
 * and every fourth one a direct buffer. Other threads compress and decompress properly.
 *
 * <p>Argument: seconds until it ends by itself.
 */
public final class LeakyServer {
    private static final int SESSIONS_PER_SECOND = 20;
    private static final int DIRECT_BUFFER_BYTES = 64 * 1024;
    private static final byte[] PAGE = "<p>the same old page</p>\n".repeat(400).getBytes(StandardCharsets.UTF_8);

    private static final Map<Long, Session> SESSIONS = new ConcurrentHashMap<>();

    private static final class Session {
        final Deflater compressor;
        final ByteBuffer attachment;

        Session(Deflater compressor, ByteBuffer attachment) {
            this.compressor = compressor;
            this.attachment = attachment;
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        long lifetimeSeconds = Long.parseLong(arguments[0]);
        for (int i = 0; i < 2; i++) {
            Thread worker = new Thread(LeakyServer::serveRequests, "request-" + i);
            worker.setDaemon(true);
            worker.start();
        }
        System.out.println("ready");
        for (long id = 0; id < lifetimeSeconds * SESSIONS_PER_SECOND; id++) {
            SESSIONS.put(id, openSession(id));
            Thread.sleep(1000 / SESSIONS_PER_SECOND);
        }
    }

    /** The leak: closing a session forgets {@code compressor.end()}, and the map keeps the session. */
    private static Session openSession(long id) {
        Deflater compressor = new Deflater();
        compress(compressor);
        ByteBuffer attachment = id % 4 == 0 ? ByteBuffer.allocateDirect(DIRECT_BUFFER_BYTES) : null;
        return new Session(compressor, attachment);
    }

    /** The honest part: whatever is allocated here is given back. */
    private static void serveRequests() {
        try {
            while (true) {
                Deflater deflater = new Deflater(Deflater.BEST_SPEED);
                byte[] compressed = compress(deflater);
                deflater.end();
                Inflater inflater = new Inflater();
                inflater.setInput(compressed);
                byte[] page = new byte[PAGE.length];
                int length = inflater.inflate(page);
                inflater.end();
                if (length != PAGE.length) {
                    throw new IllegalStateException("the page came back with " + length + " bytes");
                }
                Thread.sleep(2);
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static byte[] compress(Deflater deflater) {
        byte[] output = new byte[PAGE.length];
        deflater.setInput(PAGE);
        deflater.finish();
        int length = deflater.deflate(output);
        return java.util.Arrays.copyOf(output, length);
    }
}
