// SPDX-License-Identifier: Apache-2.0
// Recognises files that do not have the expected format: archives, weights in another format, a web
// page saved under the name of a file. Readers that fail use this to name the kind of file in their
// error.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// Number of bytes from the beginning of a file that describe_file_kind() needs.
inline constexpr size_t kFileKindBytes = 1024;

// Describes the kind of file that begins with `start`, and the remedy: GGUF, zip, pickle, gzip and
// other archives, HDF5, zeros, a Git LFS pointer, an HTML page. Empty for other files.
[[nodiscard]] std::string describe_file_kind(std::string_view start);

// Like describe_file_kind(), but recognises Git LFS pointers only.
[[nodiscard]] std::string describe_lfs_pointer(std::string_view text);

}  // namespace heddle
