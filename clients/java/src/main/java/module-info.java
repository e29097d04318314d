/** The client of Snowbank, a daemon that hands out unique, time-sortable 64-bit IDs. */
module snowbank.client {
    requires static transitive org.jspecify;

    exports snowbank.client;
}
