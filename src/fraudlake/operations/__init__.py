"""Operations: the state of a lake, and its maintenance."""
