// SPDX-License-Identifier: Apache-2.0
// FairKey: whose request it is, for the policy `fair` (docs/scheduling.md). The operator says what
// tells tenants apart; what cannot be told apart is one tenant.
//
// Threading: values and free functions.
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

#include "server/http_message.h"

namespace heddle::server {

struct FairKey {
  enum class Source {
    kNone,    // everybody is one tenant
    kUser,    // the body's `user`
    kApiKey,  // the key that was sent
    kHeader,  // a header, which a proxy in front should set
  };

  Source source = Source::kUser;
  std::string header;  // of kHeader, in lower case
};

// "none", "user", "api-key" or "header:NAME". Error: kInvalidArgument for anything else.
[[nodiscard]] Result<FairKey> parse_fair_key(std::string_view text);

// `user` is the body's field, "" without one. Of an API key only a hash leaves this function.
[[nodiscard]] std::string tenant_of(const FairKey& key, const HttpRequest& head,
                                    std::string_view user);

// The API key of a request: Authorization: Bearer, else x-api-key, else api-key.
[[nodiscard]] std::string_view api_key_of(const HttpRequest& head);

}  // namespace heddle::server
