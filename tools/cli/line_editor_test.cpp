// SPDX-License-Identifier: Apache-2.0
// The editor in a child process behind a pseudo-terminal, to which the test types.
#include "tools/cli/line_editor.h"

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "checkpoint/checkpoint_fixture.h"

namespace heddle::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kUp = "\x1b[A", kLeft = "\x1b[D";

std::string read_all(int file) {
  std::string text;
  char bytes[4096];
  for (ssize_t count = 0; (count = ::read(file, bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(count));
  }
  return text;
}

class LineEditorTest : public ::testing::Test {
 protected:
  struct Chat {
    pid_t child = -1;
    int terminal = -1;
    int results = -1;
  };

  // An editor that shows its prompt.
  Chat begin() {
    int results[2];
    EXPECT_EQ(::pipe(results), 0);
    Chat chat;
    chat.child = ::forkpty(&chat.terminal, nullptr, nullptr, nullptr);
    EXPECT_GE(chat.child, 0);
    if (chat.child == 0) {
      ::setenv("TERM", "xterm", 1);
      ::close(results[0]);
      LineEditor editor(history_file_);
      while (const auto message = editor.read()) {
        // An answer would be cut by Ctrl-C now, and not show it.
        termios mode{};
        if (::tcgetattr(STDIN_FILENO, &mode) != 0 || (mode.c_lflag & ISIG) == 0) ::_exit(3);
        if ((mode.c_lflag & ECHOCTL) != 0) ::_exit(4);
        const std::string one = *message + '\0';
        if (::write(results[1], one.data(), one.size()) < 0) break;
      }
      ::_exit(0);
    }
    ::close(results[1]);
    // Earlier, Ctrl-C would be a signal still.
    std::string shown;
    char byte = 0;
    while (!shown.ends_with("> ") && ::read(chat.terminal, &byte, 1) == 1) shown += byte;
    chat.results = results[0];
    return chat;
  }

  // The messages that the editor makes of these keys, and of the end of the input behind them.
  static std::vector<std::string> end(const Chat& chat, std::string_view keys) {
    const auto& [child, terminal, results] = chat;
    const std::string typed = std::string(keys) + "\x04";
    EXPECT_EQ(::write(terminal, typed.data(), typed.size()), std::ssize(typed));
    read_all(terminal);  // so that the child never waits for its output to be read
    const std::string all = read_all(results);
    ::close(results);
    ::close(terminal);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    std::vector<std::string> messages;
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = all.find('\0', begin);
      messages.push_back(all.substr(begin, end - begin));
      begin = end + 1;
    }
    return messages;
  }

  std::vector<std::string> messages(std::string_view keys) { return end(begin(), keys); }

  checkpoint::testing::TemporaryFolder folder_;
  std::filesystem::path history_file_ = folder_.path() / "state" / "history";
};

TEST_F(LineEditorTest, TheKeysOfShellsEditALine) {
  using namespace std::string_literals;

  const struct {
    std::string keys;
    std::string message;
  } cases[] = {
      {"plain\r", "plain"},
      {"helo" + std::string(kLeft) + "l\r", "hello"},
      {"world\x01hello \r", "hello world"},                        // Ctrl-A
      {"gr\xC3\xBC\xC3\xA4\x7F\xC3\x9F\r", "gr\xC3\xBC\xC3\x9F"},  // backspace
      {"one two\x17three\r", "one three"},                         // Ctrl-W
      {"forget\x03keep\r", "keep"},                                // Ctrl-C
      {"above\x1b\rbelow\r", "above\nbelow"},                      // Alt-Enter
      {"a\\\rb\\\rc\r", "a\nb\nc"},                                // backslashes
      {"\"\"\"\rx = 1\r\ry\"\"\"\r", "x = 1\n\ny"},                // triple quotes
      {"\"\"\"one line\"\"\"\r", "one line"},
      {"\x1b[200~pasted\rlines\r\x1b[201~ end\r", "pasted\nlines\n end"},
  };

  for (const auto& [keys, message] : cases) {
    EXPECT_THAT(messages(keys), ElementsAre(message)) << message;
  }
}

TEST_F(LineEditorTest, MessagesAreRememberedInThisRunAndTheNext) {
  EXPECT_THAT(messages("first\rsecond\r" + std::string(kUp) + std::string(kUp) + "!\r"),
              ElementsAre("first", "second", "first!"));
  EXPECT_THAT(messages(std::string(kUp) + "?\r"), ElementsAre("first!?"));
  EXPECT_THAT(messages("\x12sec\r"), ElementsAre("second")) << "Ctrl-R";
  struct stat file = {};
  ASSERT_EQ(::stat(history_file_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST_F(LineEditorTest, SeveralChatsAtATimeKeepTheMessagesOfAll) {
  EXPECT_THAT(messages("before\r"), ElementsAre("before"));
  const Chat first = begin();
  const Chat second = begin();
  EXPECT_THAT(end(second, "of the second\rtoo\r"), ElementsAre("of the second", "too"));
  EXPECT_THAT(end(first, "of the first\r"), ElementsAre("of the first"));
  EXPECT_THAT(messages(std::string(kUp) + "\r"), ElementsAre("of the first"));
  EXPECT_THAT(messages(std::string(kUp) + std::string(kUp) + "\r"), ElementsAre("too"));
  EXPECT_THAT(messages("\x12"
                       "of the sec\r"),
              ElementsAre("of the second"))
      << "Ctrl-R";
  EXPECT_THAT(messages("\x12"
                       "bef\r"),
              ElementsAre("before"));
}

TEST_F(LineEditorTest, WithoutAFileForThemMessagesAreReadAllTheSame) {
  history_file_ = "/proc/heddle/history";
  EXPECT_THAT(messages("hello\r" + std::string(kUp) + "\r"), ElementsAre("hello", "hello"));
  history_file_.clear();
  EXPECT_THAT(messages("hello\r"), ElementsAre("hello"));
  EXPECT_THAT(messages(""), IsEmpty());
}

}  // namespace
}  // namespace heddle::tools
