// SPDX-License-Identifier: Apache-2.0
// Files of a checkpoint: large ones mapped read-only, small JSON ones read as text up to a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <heddle/status.h>

namespace heddle::checkpoint {

// A whole file mapped read-only. The file must not be shortened while it is mapped: reading past
// the new end would kill the process (SIGBUS). Replacing it by rename is safe.
//
// Threading: thread-compatible; the bytes may be read from any thread.
class MappedFile {
 public:
  // Error: kNotFound, kInvalidArgument (a folder, a device), kResourceExhausted (no address space),
  // or as file_exists() (core/file_presence.h).
  static Result<MappedFile> open(const std::filesystem::path& path);

  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

// Reads the whole file. Error: kNotFound; kInvalidArgument if it is not a regular file or exceeds
// `max_bytes`; as file_exists().
Result<std::string> read_text_file(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace heddle::checkpoint
