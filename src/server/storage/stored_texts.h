// SPDX-License-Identifier: Apache-2.0
// StoredTexts: reads the files of /v1/files that the messages of one call name by their ids.
//
// Threading: thread-confined. read() waits for the disk.
// Bounds:    kMaxBytes per call, because a short request may name a long file many times.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "server/http/api_error.h"
#include "server/http/http_message.h"
#include "server/storage/file_store.h"

namespace heddle::server {

class StoredTexts {
 public:
  static constexpr int64_t kMaxBytes = int64_t{16} << 20;

  struct File {
    std::string name;
    std::string bytes;
  };

  // Reads files that the key of the request `head` may see. Both arguments outlive the object.
  StoredTexts(const FileStore& files, const HttpRequest& head) : files_(files), head_(head) {}

  // Reads a file. Errors: there is no such file, it belongs to another key, a web page may not read
  // it, or the files of the call are too long in total. `param` names the file in errors.
  [[nodiscard]] std::variant<File, ApiError> read(const std::string& id, const std::string& param);

 private:
  const FileStore& files_;
  const HttpRequest& head_;
  int64_t bytes_left_ = kMaxBytes;
};

}  // namespace heddle::server
