// SPDX-License-Identifier: Apache-2.0
#include "server/storage/stored_texts.h"

#include <utility>

#include <fmt/format.h>

#include "core/printable.h"
#include "server/http/key_ring.h"

namespace heddle::server {

std::variant<StoredTexts::File, ApiError> StoredTexts::read(const std::string& id,
                                                            const std::string& param) {
  if (!head_.stored_refusal.empty()) return stored_refused(head_, param);
  const ApiError unknown{
      .status = 404,
      .code = "file_not_found",
      .message = fmt::format("There is no file `{}`. Upload it to /v1/files.", printable(id, 128)),
      .param = param};
  const auto file = files_.find(id, holder_of(head_.key));
  if (!file) return unknown;
  if (file->num_bytes > bytes_left_) {
    return invalid_value(param,
                         fmt::format("`{}` has {} bytes; the files of a request may have {} MiB "
                                     "together.",
                                     param, file->num_bytes, kMaxBytes >> 20));
  }
  bytes_left_ -= file->num_bytes;
  Result<std::string> bytes = files_.read(id);
  if (!bytes.ok()) return unknown;  // the file was deleted after it had been found
  return File{.name = file->name, .bytes = std::move(bytes).value()};
}

}  // namespace heddle::server
