// SPDX-License-Identifier: Apache-2.0
// Recognises files that are not of the expected format: archives, weights in another format, a web
// page saved under a file's name. A reader that fails asks here, so that its error names the kind.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// Bytes from the beginning of a file that describe_file_kind() needs.
inline constexpr size_t kFileKindBytes = 1024;

// Says in words what kind of file begins with `start`, with the remedy: GGUF, zip, pickle, gzip and
// other archives, HDF5, zeros, a Git LFS pointer, an HTML page. Empty for any other.
[[nodiscard]] std::string describe_file_kind(std::string_view start);

// Like describe_file_kind(), but recognises Git LFS pointers only.
[[nodiscard]] std::string describe_lfs_pointer(std::string_view text);

}  // namespace heddle
