// SPDX-License-Identifier: Apache-2.0
// The routes /open_session and /close_session, and the field session_params of /generate.
//
// Threading: free functions without state of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <nlohmann/json.hpp>

#include "server/api/native/session_store.h"
#include "server/call/field_reader.h"

namespace heddle::server {

// {"capacity_of_str_len": N, "session_id": ID, "timeout": SECONDS}, the last two optional. Returns
// the session's id. A token stands for at least a character, so a capacity in characters serves as
// one in tokens. `holder` and `now` as in SessionStore.
std::variant<nlohmann::ordered_json, ApiError> open_session(std::string_view body,
                                                            std::string holder, int64_t now,
                                                            SessionStore& store);

// {"session_id": ID}. Error: 404 when `holder` has no such session.
std::variant<nlohmann::ordered_json, ApiError> close_session(std::string_view body,
                                                             const std::string& holder,
                                                             SessionStore& store);

// The object session_params of `fields`; none without it.
std::optional<SessionParams> read_session_params(FieldReader& fields);

}  // namespace heddle::server
