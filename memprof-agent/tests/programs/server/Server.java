import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.catalina.Context;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.startup.Tomcat;

/**
 * Tomcat with one page, which is made from a file and sent compressed.
 *
 * <p>Arguments: a directory for Tomcat's files, and a file to read.
 */
public final class Server {
    public static void main(String[] arguments) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(arguments[0]);
        Connector connector = new Connector();
        connector.setPort(0);
        connector.setProperty("address", "127.0.0.1");
        connector.setProperty("compression", "force");
        connector.setProperty("maxThreads", "20");
        tomcat.setConnector(connector);
        Context context = tomcat.addContext("", arguments[0]);
        Tomcat.addServlet(context, "page", new Page(Path.of(arguments[1])));
        context.addServletMappingDecoded("/page", "page");
        tomcat.start();
        System.out.println("value port " + connector.getLocalPort());
        System.out.println("ready");
        waitForLine();
        System.out.println("done");
        waitForLine();
        tomcat.stop();
        System.exit(0);
    }

    private static final class Page extends HttpServlet {
        private static final long serialVersionUID = 1;

        private final transient Path file;

        Page(Path file) {
            this.file = file;
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response)
                throws ServletException, IOException {
            int bytes = Integer.parseInt(request.getParameter("bytes"));
            ByteBuffer content = ByteBuffer.allocate(bytes);
            try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
                channel.read(content, 0);
            }
            response.setContentType("text/plain");
            PrintWriter writer = response.getWriter();
            writer.println(IntStream.range(0, bytes / 64)
                    .mapToObj(i -> Integer.toHexString(content.getInt(i)))
                    .collect(Collectors.joining(" ")));
        }
    }

    private static void waitForLine() throws IOException {
        int read;
        do {
            read = System.in.read();
        } while (read != '\n' && read != -1);
    }
}
