// SPDX-License-Identifier: Apache-2.0
// Documents within messages, as far as they are text: `file` of a chat, `input_file` of Responses,
// `document` and `search_result` of Messages.
//
//   file, input_file   file_data: base64, or a data URL; the type is that of the URL, else the
//                      filename's
//   document           source of the types text, base64 (of a text type) and content
//   search_result      title, source and blocks of text
//
// A title, a context and a filename lead the text. A document that is no text (a PDF, a
// picture), or that the server would have to fetch (a URL), is refused by name. `file_id` names a
// file that the key of the request uploaded to /v1/files.
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <nlohmann/json_fwd.hpp>

#include "server/http/api_error.h"

namespace heddle::server {

struct CallContext;

using DocumentText = std::variant<std::string, ApiError>;

// Nothing for a part of another type. `param` names the part in errors. Cost: a file that is named
// by its id is read from the disk.
[[nodiscard]] std::optional<DocumentText> read_document_part(const CallContext& context,
                                                             const nlohmann::ordered_json& part,
                                                             std::string_view type,
                                                             const std::string& param);

// Whether parts of the type show or say something that a model of text cannot take: images, audio,
// video.
[[nodiscard]] bool is_media_part(std::string_view type);

// "[TYPE: JSON]" of a part or an item of an unknown kind, without its ids and encrypted members.
[[nodiscard]] std::string shown_as_text(std::string_view type, nlohmann::ordered_json value);

}  // namespace heddle::server
