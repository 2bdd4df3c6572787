// SPDX-License-Identifier: Apache-2.0
#include "server/call/document_part.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

#include "core/printable.h"
#include "server/call/api_adapter.h"
#include "server/http/http_message.h"
#include "server/http/json_text.h"
#include "server/storage/stored_texts.h"
#include "tokenizer/utf8.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

std::string member(const Json& object, std::string_view name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Decodes base64 text, with or without padding, in both alphabets; none for other text.
std::optional<std::string> decode_base64(std::string text) {
  std::erase_if(text, [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
  std::ranges::replace(text, '-', '+');
  std::ranges::replace(text, '_', '/');
  while (text.size() % 4 != 0) text += '=';
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

bool is_text_type(std::string_view media_type) {
  constexpr std::array<std::string_view, 8> kTexts = {
      "application/json",       "application/xml",        "application/yaml",
      "application/x-yaml",     "application/javascript", "application/x-ndjson",
      "application/typescript", "application/toml"};
  media_type = media_type.substr(0, media_type.find(';'));
  return media_type.starts_with("text/") || media_type.ends_with("+json") ||
         media_type.ends_with("+xml") || std::ranges::find(kTexts, media_type) != kTexts.end();
}

// The media type of a file that was sent without one, by its name. Others are recognised by their
// bytes (as_text()).
std::string_view type_of_name(std::string_view filename) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kTypes = {{
      {".pdf", "application/pdf"},
      {".png", "image/png"},
      {".jpg", "image/jpeg"},
      {".jpeg", "image/jpeg"},
      {".docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"},
      {".xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"},
      {".pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"},
      {".zip", "application/zip"},
  }};
  for (const auto& [ending, type] : kTypes) {
    if (filename.ends_with(ending)) return type;
  }
  return {};
}

ApiError refused(const std::string& param, const std::string& what) {
  return {
      .code = "unsupported_parameter",
      .message = fmt::format("`{}` is {}; this model takes text only. Send the text.", param, what),
      .param = param};
}

std::string data_kind_of(std::string_view type, std::string_view media_type) {
  return fmt::format("a part of type {} with data of type {}", type,
                     media_type.empty() ? "application/octet-stream" : printable(media_type, 80));
}

// The data as text, or an error if its type or its bytes are not text.
DocumentText as_text(std::string bytes, std::string_view media_type, std::string_view type,
                     const std::string& param) {
  if (!media_type.empty() && !is_text_type(media_type)) {
    return refused(param, data_kind_of(type, media_type));
  }
  if (!tokenizer::is_valid_utf8(bytes) || bytes.find('\0') != std::string::npos) {
    return media_type.empty()
               ? DocumentText(refused(param, data_kind_of(type, media_type)))
               : DocumentText(invalid_value(
                     param, fmt::format("The data of `{}` is not text in UTF-8.", param)));
  }
  return bytes;
}

// Decodes base64 data to text.
DocumentText decoded_text(std::string data, std::string_view media_type, std::string_view type,
                          const std::string& param) {
  if (!media_type.empty() && !is_text_type(media_type)) {
    return refused(param, data_kind_of(type, media_type));
  }
  auto bytes = decode_base64(std::move(data));
  if (!bytes) return invalid_value(param, fmt::format("The data of `{}` is not base64.", param));
  return as_text(*std::move(bytes), media_type, type, param);
}

// The text of a data URL, which is percent-encoded or base64.
DocumentText read_data_url(const std::string& url, std::string_view type,
                           const std::string& param) {
  const size_t comma = url.find(',');
  if (comma == std::string::npos) {
    return invalid_value(param, fmt::format("The data URL of `{}` has no data.", param));
  }
  std::string media_type = lower_case(url.substr(5, comma - 5));
  const bool is_base64 = media_type.ends_with(";base64");
  media_type.resize(std::min(media_type.find(';'), media_type.size()));
  if (media_type.empty()) media_type = "text/plain";
  if (is_base64) return decoded_text(url.substr(comma + 1), media_type, type, param);
  if (!is_text_type(media_type)) return refused(param, data_kind_of(type, media_type));
  std::string text = percent_decode(std::string_view(url).substr(comma + 1));
  if (!tokenizer::is_valid_utf8(text)) {
    return invalid_value(param, fmt::format("The data of `{}` is not text in UTF-8.", param));
  }
  return text;
}

DocumentText with_heading(std::string heading, DocumentText text) {
  auto* const found = std::get_if<std::string>(&text);
  if (found == nullptr || heading.empty()) return text;
  heading += '\n';
  return heading + *found;
}

// Reads an uploaded file. `filename`: its name in the request; may be empty.
DocumentText read_stored(const CallContext& context, const std::string& id, std::string filename,
                         std::string_view type, const std::string& param) {
  if (context.stored_texts == nullptr) {
    return refused(param, "the id of a file, and this server keeps none");
  }
  auto found = context.stored_texts->read(id, param + ".file_id");
  if (auto* const error = std::get_if<ApiError>(&found)) return std::move(*error);
  auto& file = std::get<StoredTexts::File>(found);
  if (filename.empty()) filename = std::move(file.name);
  return with_heading(filename + ":", as_text(std::move(file.bytes),
                                              type_of_name(lower_case(filename)), type, param));
}

DocumentText read_file(const CallContext& context, const Json& file, std::string_view type,
                       const std::string& param) {
  const std::string data = member(file, "file_data");
  const std::string filename = member(file, "filename");
  if (data.empty()) {
    if (!member(file, "file_url").empty()) {
      return refused(param, "a URL, which the server does not fetch");
    }
    const std::string id = member(file, "file_id");
    if (id.empty()) return missing_parameter(param + ".file_data");
    return read_stored(context, id, filename, type, param);
  }
  DocumentText text = data.starts_with("data:")
                          ? read_data_url(data, type, param)
                          : decoded_text(data, type_of_name(lower_case(filename)), type, param);
  return with_heading(filename.empty() ? "" : filename + ":", std::move(text));
}

// The texts of blocks, each on a line.
DocumentText read_blocks(const Json& content, const std::string& param) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) return invalid_type(param, "a string or a list of blocks");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string type = member(content[i], "type");
    if (type != "text") {
      return refused(fmt::format("{}[{}]", param, i),
                     fmt::format("a block of type \"{}\"", printable(type, 40)));
    }
    if (i > 0) text += '\n';
    text += member(content[i], "text");
  }
  return text;
}

std::string lines_of(std::initializer_list<std::string> lines) {
  std::string text;
  for (const std::string& line : lines) {
    if (line.empty()) continue;
    if (!text.empty()) text += '\n';
    text += line;
  }
  return text;
}

DocumentText read_document(const CallContext& context, const Json& part, const std::string& param) {
  const auto source = part.find("source");
  if (source == part.end() || !source->is_object()) return missing_parameter(param + ".source");
  const std::string type = member(*source, "type");
  const std::string heading = lines_of({member(part, "title"), member(part, "context")});
  if (type == "text") return with_heading(heading, member(*source, "data"));
  if (type == "base64") {
    return with_heading(heading, decoded_text(member(*source, "data"),
                                              member(*source, "media_type"), "document", param));
  }
  if (type == "content") {
    return with_heading(heading,
                        read_blocks(source->value("content", Json()), param + ".source.content"));
  }
  if (type == "file" && !member(*source, "file_id").empty()) {
    return with_heading(heading, read_stored(context, member(*source, "file_id"), {}, "document",
                                             param + ".source"));
  }
  return refused(param, fmt::format("a document by {}, which the server does not fetch",
                                    type == "url" ? "a URL" : "another source"));
}

}  // namespace

std::optional<DocumentText> read_document_part(const CallContext& context, const Json& part,
                                               std::string_view type, const std::string& param) {
  if (type == "input_file") return read_file(context, part, type, param);
  if (type == "file") {
    const auto file = part.find("file");
    return read_file(context, file != part.end() && file->is_object() ? *file : part, type,
                     param + ".file");
  }
  if (type == "document") return read_document(context, part, param);
  if (type == "search_result") {
    const std::string heading = lines_of({member(part, "title"), member(part, "source")});
    return with_heading(heading, read_blocks(part.value("content", Json()), param + ".content"));
  }
  return std::nullopt;
}

bool is_media_part(std::string_view type) {
  constexpr std::array<std::string_view, 12> kMedia = {
      "image", "image_url", "input_image", "audio", "audio_url",    "input_audio",
      "video", "video_url", "input_video", "media", "output_audio", "computer_screenshot"};
  return std::ranges::find(kMedia, type) != kMedia.end();
}

std::string shown_as_text(std::string_view type, Json value) {
  if (value.is_object()) {
    for (const char* const name : {"type", "id", "call_id", "tool_use_id", "status", "caller",
                                   "cache_control", "encrypted_content", "fingerprint"}) {
      value.erase(name);
    }
  }
  return fmt::format("[{}: {}]", printable(type, 40), dump_json(value));
}

}  // namespace heddle::server
