// SPDX-License-Identifier: Apache-2.0
// Conversations in the browser's storage, an entry each, so that tabs do not overwrite each other's.
//
// A conversation is {id, title, system, updated, messages}; a message {role, content} and of answers, too, {reasoning,
// reasoningSeconds, meta, error}.

const kPrefix = 'heddle-chat-';

// Not crypto.randomUUID(), which pages of plain HTTP lack.
export const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 10);

export const newChat = () => ({id: newId(), title: '', system: '', updated: Date.now(), messages: []});

function read(key) {
  try {
    const chat = JSON.parse(localStorage.getItem(key));
    return chat && Array.isArray(chat.messages) && typeof chat.id === 'string' ? chat : null;
  } catch {
    return null;
  }
}

export const load = (id) => read(kPrefix + id);

// Newest first.
export function list() {
  try {
    return Object.keys(localStorage).filter((key) => key.startsWith(kPrefix)).map(read).filter(Boolean)
      .sort((a, b) => b.updated - a.updated);
  } catch {
    return [];  // storage is forbidden
  }
}

// False where the storage is full or forbidden: what was stored before stays.
export function save(chat) {
  try {
    localStorage.setItem(kPrefix + chat.id, JSON.stringify(chat));
    return true;
  } catch {
    return false;
  }
}

export const remove = (id) => localStorage.removeItem(kPrefix + id);

export const titleOf = (chat) =>
  chat.title || chat.messages[0]?.content.trim().replace(/\s+/g, ' ').slice(0, 80) || 'New chat';
