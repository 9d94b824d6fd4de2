// The look-up of a name by a resolver that never answers, loaded before the C library's.
#include <netdb.h>
#include <unistd.h>

extern "C" int getaddrinfo(const char*, const char*, const addrinfo*, addrinfo**) {
  while (true) pause();
}
