// The targets of precompiled headers need a source file.
int main() { return 0; }
