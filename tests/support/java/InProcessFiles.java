import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermission;
import java.util.EnumSet;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.local.LocalConfigKeys;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, except that it starts no processes.
 *
 * Without Hadoop's native library, the original runs chmod for each file that it creates and readlink for each
 * that it renames: about a hundred processes in a micro-batch.
 */
public class InProcessFiles extends ChecksumFs {
    public InProcessFiles(URI uri, Configuration conf) throws IOException, URISyntaxException {
        super(new Raw(conf));
    }

    /** The same for Hadoop's older interface. */
    public static class Older extends LocalFileSystem {
        public Older() {
            super(new RawFiles());
        }
    }

    /** As `org.apache.hadoop.fs.local.RawLocalFs`, which is not public. */
    private static class Raw extends DelegateToFileSystem {
        Raw(Configuration conf) throws IOException, URISyntaxException {
            super(URI.create("file:///"), new RawFiles(), conf, "file", false);
        }

        @Override
        public int getUriDefaultPort() {
            return -1;
        }

        @Override
        public boolean isValidName(String source) {
            return true;
        }

        @Override
        @Deprecated
        public FsServerDefaults getServerDefaults() throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }

        @Override
        public FsServerDefaults getServerDefaults(Path path) throws IOException {
            return LocalConfigKeys.getServerDefaults();
        }
    }

    private static class RawFiles extends RawLocalFileSystem {
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            Set<PosixFilePermission> granted = EnumSet.noneOf(PosixFilePermission.class);
            for (PosixFilePermission each : PosixFilePermission.values()) { // owner's right to read is the first
                if ((permission.toShort() & (0400 >> each.ordinal())) != 0) {
                    granted.add(each);
                }
            }
            Files.setPosixFilePermissions(pathToFile(path).toPath(), granted);
        }

        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
            return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
        }
    }
}
