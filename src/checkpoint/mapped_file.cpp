// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file_kind.h"
#include "core/file_presence.h"

namespace heddle::checkpoint {

namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}

  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// Without O_NONBLOCK, opening a named pipe would wait for a writer.
int open_for_reading(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

Result<int64_t> size_of_plain_file(int fd, const std::filesystem::path& path) {
  struct stat info{};

  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return invalid_argument(
        fmt::format("{} is not a plain file; put the model's file in its place", path.string()));
  }
  return static_cast<int64_t>(info.st_size);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const FileDescriptor file(open_for_reading(path));
  if (file.get() < 0) return cannot_open(path, errno);
  HEDDLE_ASSIGN_OR_RETURN(const int64_t size, size_of_plain_file(file.get(), path));
  if (size == 0) return MappedFile({});
  const auto length = static_cast<size_t>(size);
  void* const address = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("cannot map {} ({} bytes): {}", path.string(), size, std::strerror(errno)));
  }
  return MappedFile({static_cast<const std::byte*>(address), length});
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());  // munmap takes no const pointer
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<std::string> read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  const FileDescriptor file(open_for_reading(path));
  if (file.get() < 0) return cannot_open(path, errno);
  HEDDLE_ASSIGN_OR_RETURN(const int64_t size, size_of_plain_file(file.get(), path));
  if (size > max_bytes) {
    return invalid_argument(
        fmt::format("{} has {} bytes, more than the {} that are read; download the file again",
                    path.string(), size, max_bytes));
  }
  std::string text(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return data_loss(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)));
    }
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  if (const std::string pointer = describe_lfs_pointer(text); !pointer.empty()) {
    return data_loss(fmt::format("{}: {}", path.string(), pointer));
  }
  return text;
}

}  // namespace heddle::checkpoint
