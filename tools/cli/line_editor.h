// SPDX-License-Identifier: Apache-2.0
// LineEditor: reads messages from the terminal with the keys that shells have (arrows, Ctrl-A,
// Ctrl-R, ...), and remembers them from one run to the next. Libedit (BSD licence) does the work.
//
// Several lines become one message where they are pasted, where Alt-Enter comes between them, where
// a line ends with a backslash, or between lines of """. Ctrl-C empties the line, or gives up a
// message of several.
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
  // `history_file` is read now and replaced after every message, for its owner alone (0600). With
  // an empty name, and where it cannot be written or is no regular file, messages are remembered in
  // this run only. Of several chats at a time the messages of all are kept, for the next run.
  explicit LineEditor(std::filesystem::path history_file);
  ~LineEditor();

  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // The next message, without the newline at its end; none at the end of the input (Ctrl-D on an
  // empty line).
  [[nodiscard]] std::optional<std::string> read();

  // Gives the terminal its settings of before, for a process that ends within read(). May be called
  // from any thread.
  void restore_terminal() const;

 private:
  class Terminal;

  // Appends the further lines of a message to its first. False at the end of the input.
  bool read_rest(std::string& message);

  std::unique_ptr<Terminal> terminal_;
};

// heddle/chat_history below XDG_STATE_HOME or ~/.local/state; empty where neither is known.
[[nodiscard]] std::filesystem::path chat_history_file();

}  // namespace heddle::tools
