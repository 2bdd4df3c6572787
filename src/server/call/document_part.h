// SPDX-License-Identifier: Apache-2.0
// Text documents inside messages: `file` in chats, `input_file` in Responses, `document` and
// `search_result` in Messages.
//
//   file, input_file   file_data: base64, or a data URL; the type is that of the URL, else from the
//                      filename
//   document           a source of the types text, base64 (of a text type) and content
//   search_result      title, source and blocks of text
//
// A title, a context and a filename are written before the text. A document that is no text (a PDF,
// a picture), or that the server would have to download (a URL), is refused by name. `file_id`
// names a file that the key of the request has uploaded to /v1/files.
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

// Reads a part; none if the part has another type. `param` names the part in errors. Cost: a file
// named by its id is read from the disk.
[[nodiscard]] std::optional<DocumentText> read_document_part(const CallContext& context,
                                                             const nlohmann::ordered_json& part,
                                                             std::string_view type,
                                                             const std::string& param);

// Whether parts of this type contain something that a text model cannot process: images, audio,
// video.
[[nodiscard]] bool is_media_part(std::string_view type);

// "[TYPE: JSON]" for a part or an item of an unknown kind, without its ids and encrypted members.
[[nodiscard]] std::string shown_as_text(std::string_view type, nlohmann::ordered_json value);

}  // namespace heddle::server
