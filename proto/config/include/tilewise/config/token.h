// Where the cluster's token comes from, in this order: $TILEWISE_TOKEN (hex), the file named by --token-file, the
// default file $XDG_CONFIG_HOME/tilewise/token or ~/.config/tilewise/token.
#pragma once
#include <tilewise/net/token.h>

#include <string>

namespace tilewise::config {

struct FoundToken {
  net::Token token;
  bool chosen = false;  // somebody provided it: the environment, or a file that was there before
  std::string source;   // for people; never the secret
};

Result<std::string> default_token_path();  // kNotFound where neither variable is set

// `file` empty: the default one. `create`: a missing file is created (0600) by whoever comes first; else kNotFound with
// a text that says what to do.
Result<FoundToken> find_token(const std::string& file, bool create);

}  // namespace tilewise::config
