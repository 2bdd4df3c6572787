// SPDX-License-Identifier: Apache-2.0
// The sender of a request: its API key, the tenant that the policy `fair` charges
// (docs/scheduling.md), and its request id.
//
// Threading: values and free functions without state.
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

#include "server/http/http_message.h"

namespace heddle::server {

// How the operator identifies tenants. Requests that the rule cannot distinguish belong to one
// tenant.
struct FairKey {
  enum class Source {
    kNone,    // all requests belong to one tenant
    kUser,    // the tenant is the body's field `user`
    kApiKey,  // the tenant is the API key of the request
    kHeader,  // the tenant is the value of a header, which a proxy in front of the server should
              // set
  };

  Source source = Source::kUser;
  std::string header;  // name of the header for kHeader, in lower case
};

// Parses "none", "user", "api-key" or "header:NAME". Error: kInvalidArgument for anything else.
[[nodiscard]] Result<FairKey> parse_fair_key(std::string_view text);

// The tenant of a request: the name of its API key if keys have names (key_ring.h), else by the
// rule `key`. `user` is the body's field, "" if it is missing. An API key without a name is only
// returned as a hash.
[[nodiscard]] std::string tenant_of(const FairKey& key, const HttpRequest& head,
                                    std::string_view user);

// The API key of a request: from Authorization: Bearer, else x-api-key, else api-key.
[[nodiscard]] std::string_view api_key_of(const HttpRequest& head);

// Whether two texts are equal. The time depends only on the length of `sent`, not on where the
// texts differ.
[[nodiscard]] bool equal_in_constant_time(std::string_view sent, std::string_view secret);

// Makes an id for a request that has none: `prefix` and 32 hexadecimal digits. Anyone who knows an
// id may abort its request, so no client may be able to guess another's: the digits are 128 fresh
// bits of the system's random source. Cost: one system call.
[[nodiscard]] std::string new_request_id(std::string_view prefix);

// Whether the text matches [A-Za-z0-9._:-]{1,128}.
[[nodiscard]] bool is_request_id(std::string_view text);

}  // namespace heddle::server
