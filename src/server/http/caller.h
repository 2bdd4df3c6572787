// SPDX-License-Identifier: Apache-2.0
// The caller of a request: API keys, the tenant that the policy `fair` charges
// (docs/scheduling.md), request ids.
//
// Threading: values and free functions without state.
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

#include "server/http/http_message.h"

namespace heddle::server {

// How the operator identifies tenants; requests that it cannot distinguish are of one tenant.
struct FairKey {
  enum class Source {
    kNone,    // all requests are of one tenant
    kUser,    // the body's `user`
    kApiKey,  // the key that was sent
    kHeader,  // a header, which a proxy in front should set
  };

  Source source = Source::kUser;
  std::string header;  // of kHeader, in lower case
};

// "none", "user", "api-key" or "header:NAME". Error: kInvalidArgument for anything else.
[[nodiscard]] Result<FairKey> parse_fair_key(std::string_view text);

// The name of the key that was sent, where keys have names (key_ring.h); else what `key` says.
// `user` is the body's field, "" without one. Of an API key only a hash leaves this function.
[[nodiscard]] std::string tenant_of(const FairKey& key, const HttpRequest& head,
                                    std::string_view user);

// The API key of a request: Authorization: Bearer, else x-api-key, else api-key.
[[nodiscard]] std::string_view api_key_of(const HttpRequest& head);

// Takes a time that only the length of `sent` decides, wherever the texts differ.
[[nodiscard]] bool equal_in_constant_time(std::string_view sent, std::string_view secret);

// An id for a request that came without one: `prefix` and 32 hexadecimal digits. An id is also the
// right to abort its request, so no client may be able to guess another's: the digits are 128 fresh
// bits of the system's random source. Cost: one system call.
[[nodiscard]] std::string new_request_id(std::string_view prefix);

// True for [A-Za-z0-9._:-]{1,128}.
[[nodiscard]] bool is_request_id(std::string_view text);

}  // namespace heddle::server
