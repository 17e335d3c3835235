import java.io.File;
import java.io.FileInputStream;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/** Fails unless Java, by each truststore, accepts a chain from a server and from a client. */
public class Accepts {
  public static void main(String[] args) throws Exception {
    X509Certificate[] chain =
        CertificateFactory.getInstance("X.509")
            .generateCertificates(new FileInputStream(args[0]))
            .toArray(new X509Certificate[0]);
    for (int i = 1; i < args.length; i++) {
      System.out.println(args[i]);
      TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
      factory.init(KeyStore.getInstance(new File(args[i]), System.getenv("STORE_PASSWORD").toCharArray()));
      for (TrustManager manager : factory.getTrustManagers()) {
        ((X509TrustManager) manager).checkServerTrusted(chain, "ECDHE_ECDSA");
        ((X509TrustManager) manager).checkClientTrusted(chain, "EC");
      }
    }
  }
}
