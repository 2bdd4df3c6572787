// SPDX-License-Identifier: Apache-2.0
#include "server/http/multipart_form.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "server/http/http_message.h"

namespace heddle::server {
namespace {

ApiError malformed(std::string message) {
  return {.code = "invalid_form", .message = std::move(message)};
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The value of the parameter `name` in a header such as `form-data; name="a"; filename="b.jsonl"`.
std::optional<std::string> parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at != std::string_view::npos) {
    std::string_view rest = header.substr(at + 1);
    const size_t equals = rest.find_first_of("=;");
    if (equals == std::string_view::npos) return std::nullopt;
    if (rest[equals] == ';') {
      at += 1 + equals;
      continue;
    }
    const bool wanted = lower_case(trimmed(rest.substr(0, equals))) == name;
    std::string value;
    size_t end = equals + 1;
    while (end < rest.size() && rest[end] == ' ') ++end;
    if (end < rest.size() && rest[end] == '"') {
      for (++end; end < rest.size() && rest[end] != '"'; ++end) {
        if (rest[end] == '\\' && end + 1 < rest.size()) ++end;
        value += rest[end];
      }
    } else {
      const size_t begin = end;
      end = std::min(rest.find(';', begin), rest.size());
      value = trimmed(rest.substr(begin, end - begin));
    }
    if (wanted) return value;
    const size_t next = rest.find(';', std::min(end, rest.size()));
    at = next == std::string_view::npos ? next : at + 1 + next;
  }
  return std::nullopt;
}

// Reads a part's headers into `part`. Returns false if the part is no field of a form.
bool read_head(std::string_view head, FormPart& part) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(head.size(), end + 2));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return false;
    if (lower_case(line.substr(0, colon)) != "content-disposition") continue;
    const auto name = parameter(line.substr(colon + 1), "name");
    if (!name) return false;
    part.name = *name;
    part.file_name = parameter(line.substr(colon + 1), "filename").value_or("");
  }
  return !part.name.empty();
}

}  // namespace

std::variant<std::vector<FormPart>, ApiError> parse_multipart_form(std::string_view content_type,
                                                                   std::string_view body) {
  const auto boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMaxBoundaryBytes) {
    return malformed(
        fmt::format("The Content-Type must be multipart/form-data with a boundary of "
                    "1 to {} characters.",
                    kMaxBoundaryBytes));
  }
  const std::string mark = "--" + *boundary;
  if (!body.starts_with(mark)) return malformed("The form does not begin with its boundary.");
  body.remove_prefix(mark.size());
  const std::string next_mark = "\r\n" + mark;
  std::vector<FormPart> parts;
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n")) return malformed("A boundary of the form is not a line.");
    if (parts.size() == kMaxFormParts) {
      return malformed(fmt::format("The form has more than {} parts.", kMaxFormParts));
    }
    body.remove_prefix(2);
    const size_t head_end = body.substr(0, kMaxFormPartHead).find("\r\n\r\n");
    FormPart& part = parts.emplace_back();
    if (head_end == std::string_view::npos || !read_head(body.substr(0, head_end), part)) {
      return malformed(fmt::format(
          "Part {} of the form has no Content-Disposition with a name within its first {} bytes.",
          parts.size(), kMaxFormPartHead));
    }
    body.remove_prefix(head_end + 4);
    const size_t end = body.find(next_mark);
    if (end == std::string_view::npos) {
      return malformed(fmt::format("Part {} of the form has no end.", parts.size()));
    }
    part.content = body.substr(0, end);
    body.remove_prefix(end + next_mark.size());
  }
  return parts;
}

}  // namespace heddle::server
