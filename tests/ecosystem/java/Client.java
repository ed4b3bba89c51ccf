import io.openlineage.client.OpenLineage;
import io.openlineage.client.OpenLineageClient;
import io.openlineage.client.transports.HttpConfig;
import io.openlineage.client.transports.HttpTransport;
import java.net.URI;
import java.time.ZonedDateTime;
import java.util.List;
import java.util.UUID;

/** Sends a run that succeeds and one that fails to the collector at the address that is its first argument. */
public class Client {
  private static final OpenLineage OPEN_LINEAGE = new OpenLineage(URI.create("https://example.org/java"));

  public static void main(String[] arguments) throws Exception {
    HttpConfig config = new HttpConfig();
    config.setUrl(URI.create(arguments[0]));
    try (OpenLineageClient client = OpenLineageClient.builder().transport(new HttpTransport(config)).build()) {
      run(client, "good", OpenLineage.RunEvent.EventType.COMPLETE, null);
      run(client, "bad", OpenLineage.RunEvent.EventType.FAIL, "java.lang.IllegalStateException: no table");
    }
    System.exit(0);
  }

  private static void run(
      OpenLineageClient client, String job, OpenLineage.RunEvent.EventType end, String message) {
    UUID id = UUID.randomUUID();
    client.emit(event(id, job, OpenLineage.RunEvent.EventType.START, null));
    client.emit(event(id, job, end, message));
  }

  private static OpenLineage.RunEvent event(
      UUID id, String job, OpenLineage.RunEvent.EventType type, String message) {
    OpenLineage.RunFacetsBuilder facets = OPEN_LINEAGE.newRunFacetsBuilder();
    if (message != null) {
      facets.errorMessage(OPEN_LINEAGE.newErrorMessageRunFacet(message, "JAVA", null));
    }
    return OPEN_LINEAGE
        .newRunEventBuilder()
        .eventType(type)
        .eventTime(ZonedDateTime.now())
        .run(OPEN_LINEAGE.newRun(id, facets.build()))
        .job(OPEN_LINEAGE.newJobBuilder().namespace("java").name(job).build())
        .inputs(List.of())
        .outputs(List.of(OPEN_LINEAGE.newOutputDatasetBuilder().namespace("file").name("/data/out").build()))
        .build();
  }
}
