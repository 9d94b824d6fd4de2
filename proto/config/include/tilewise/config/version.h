// What every process of one cluster must agree on, and what --version prints.
#pragma once
#include <string>

namespace tilewise::config {

const std::string& software_version();  // "0.1.0"

// Equal on two processes that may share memory and reach each other's abstract sockets: the boot of the host and the
// network namespace. Never a host name: containers and cloned machines share those.
std::string host_id();
std::string process_name();  // "host/pid", for people

}  // namespace tilewise::config
