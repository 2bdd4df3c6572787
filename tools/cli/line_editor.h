// SPDX-License-Identifier: Apache-2.0
// LineEditor: reads messages from the terminal with the keys of shells (arrows, Ctrl-A, Ctrl-R,
// ...) and stores a history for later runs. It is based on libedit (BSD licence).
//
// Several lines form one message if they are pasted, are joined by Alt-Enter, end with a backslash,
// or are between lines of """. Ctrl-C clears the line, or discards a message of several lines.
//
// Threading: thread-confined. Needs a terminal at standard input and output.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace heddle::tools {

class LineEditor {
 public:
  // `history_file` is read at the start and replaced after every message, readable by its owner
  // only (0600). If the name is empty, or the file cannot be written or is no regular file, the
  // history is not stored. The messages of several simultaneous chats are all stored for the next
  // run.
  explicit LineEditor(std::filesystem::path history_file);
  ~LineEditor();

  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Reads the next message, without the newline at its end; none at the end of the input (Ctrl-D on
  // an empty line).
  [[nodiscard]] std::optional<std::string> read();

  // Restores the terminal's original settings, for a process that ends while read() waits. May be
  // called from any thread.
  void restore_terminal() const;

 private:
  class Terminal;

  // Appends the further lines of a message to its first one. Returns false at the end of the input.
  bool read_rest(std::string& message);

  std::unique_ptr<Terminal> terminal_;
};

// The file heddle/chat_history in XDG_STATE_HOME or ~/.local/state; empty if neither is known.
[[nodiscard]] std::filesystem::path chat_history_file();

}  // namespace heddle::tools
