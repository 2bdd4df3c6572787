// SPDX-License-Identifier: Apache-2.0
// The routes /open_session and /close_session, and the field session_params of /generate.
//
// Threading: free functions without state.
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

// POST /open_session with {"capacity_of_str_len": N, "session_id": ID, "timeout": SECONDS}, the
// last two optional. Returns the session's id. A token has at least one character, so a capacity in
// characters is also a limit in tokens. `holder` and `now`: see SessionStore.
std::variant<nlohmann::ordered_json, ApiError> open_session(std::string_view body,
                                                            std::string holder, int64_t now,
                                                            SessionStore& store);

// POST /close_session with {"session_id": ID}. Error: 404 if `holder` has no such session.
std::variant<nlohmann::ordered_json, ApiError> close_session(std::string_view body,
                                                             const std::string& holder,
                                                             SessionStore& store);

// Reads the object session_params; none if `fields` has none.
std::optional<SessionParams> read_session_params(FieldReader& fields);

}  // namespace heddle::server
