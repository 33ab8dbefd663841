/** Kafka's command line tools, as they come with Apache Kafka 4.4, against a broker. */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws InterruptedException {
        Checks checks = new Checks();
        if (Checks.isSecured()) {
            SecuredTools.addTo(checks);
            checks.main(arguments);
        }
        TopicTools.addTo(checks);
        RecordTools.addTo(checks);
        GroupTools.addTo(checks);
        TransactionTools.addTo(checks);
        ClusterTools.addTo(checks);
        ManyClientsTools.addTo(checks);
        checks.main(arguments);
    }
}
