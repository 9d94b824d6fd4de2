// Boost.JSON, compiled once: Debian's headers carry its sources, so nothing has to be linked.
#include <boost/json/src.hpp>
