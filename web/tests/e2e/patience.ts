/**
 * How long a test waits for what it says will happen, in milliseconds: longer than a busy machine
 * needs, shorter than the limit of a test, whose report says less.
 */
export const PATIENCE = 90_000;
