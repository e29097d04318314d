// Linked into the static programs. glibc would load the services that /etc/nsswitch.conf names from
// the system's own C library. If that is another version, a lookup of a name ends the process.
// These services are linked in.
#include <nss.h>

__attribute__((constructor)) static void only_linked_services(void) {
    __nss_configure_lookup("hosts", "files dns");
    __nss_configure_lookup("passwd", "files");
}
